SELECT LicensePlate, make_timestamp_ms(ceil_ms(EntryTime, 1800000)) AS WindowEnd, count(*) AS Cars, avg(Toll) AS AverageToll
FROM entry GROUP BY ALL
