SELECT e.TollId, e.LicensePlate, e.EntryTime, x.ExitTime
FROM entry e JOIN exit x ON e.LicensePlate = x.LicensePlate AND e.TollId = x.TollId
AND x.ExitTime BETWEEN e.EntryTime AND e.EntryTime + INTERVAL 15 MINUTE
