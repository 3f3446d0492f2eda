SELECT DISTINCT P.id, P.name, make_timestamp(ceil_ms(P.dateTime, 10000) * 1000) AS windowEnd
FROM person P JOIN auction A ON P.id = A.seller AND ceil_ms(P.dateTime, 10000) = ceil_ms(A.dateTime, 10000)
