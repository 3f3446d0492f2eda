SELECT TollId, make_timestamp_ms(ceil_ms(EntryTime, 60000)) AS WindowEnd, count(*) AS Cars, sum(Toll) AS Takings, avg(Toll) AS AverageToll
FROM entry GROUP BY ALL
