SELECT seller, avg(price) AS average FROM (
    SELECT *, row_number() OVER (PARTITION BY seller ORDER BY bidTime DESC) AS n FROM (
        SELECT A.id, A.seller, B.price, B.dateTime AS bidTime
        FROM auction A JOIN bid B ON A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
        QUALIFY row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime) = 1))
WHERE n <= 10 GROUP BY seller
