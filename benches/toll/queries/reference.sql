SELECT o.Fleet AS Fleet, make_timestamp_ms(ceil_ms(EntryTime, 60000)) AS WindowEnd, count(*) AS Cars
FROM entry t JOIN owner o ON t.LicensePlate = o.Plate GROUP BY ALL
