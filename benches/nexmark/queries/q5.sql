WITH counts AS (
    SELECT auction, count(*) AS num, e FROM (
        SELECT auction, unnest(range(ceil_ms(dateTime, 2000), ceil_ms(dateTime, 2000) + 10000, 2000)) AS e FROM bid)
    GROUP BY auction, e)
SELECT auction, num, make_timestamp(e * 1000) AS windowEnd FROM counts
QUALIFY num = max(num) OVER (PARTITION BY e)
