SELECT bidder, count(*) AS bids, min(dateTime) AS startTime, max(dateTime) AS endTime FROM (
    SELECT bidder, dateTime, sum(fresh) OVER (PARTITION BY bidder ORDER BY dateTime ROWS UNBOUNDED PRECEDING) AS session FROM (
        SELECT bidder, dateTime, CASE WHEN dateTime - lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime)
            <= INTERVAL 10 SECONDS THEN 0 ELSE 1 END AS fresh FROM bid))
GROUP BY bidder, session
