SELECT LicensePlate, EntryTime, Previous, Toll FROM (
  SELECT LicensePlate, EntryTime, Toll, lag(Toll) OVER (PARTITION BY LicensePlate ORDER BY EntryTime) AS Previous FROM entry
) WHERE Toll - Previous > 12
