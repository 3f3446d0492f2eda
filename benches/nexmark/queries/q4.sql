SELECT category, avg(final) AS final FROM (
    SELECT A.id, A.category, max(B.price) AS final FROM auction A JOIN bid B ON A.id = B.auction
    WHERE B.dateTime BETWEEN A.dateTime AND A.expires GROUP BY A.id, A.category)
GROUP BY category
