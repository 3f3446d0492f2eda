SELECT r.Name AS Name, make_timestamp_ms(ceil_ms(Time, 60000)) AS WindowEnd, avg(r."Value") AS Average
FROM (SELECT Time, unnest(Readings) AS r FROM sensor) GROUP BY ALL
