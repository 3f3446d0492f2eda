SELECT bidder, count(*) AS bids, make_timestamp(ceil_ms(dateTime, 10000) * 1000) AS windowEnd FROM bid
GROUP BY bidder, windowEnd
