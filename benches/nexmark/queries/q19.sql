SELECT auction, bidder, price, channel, url, dateTime, extra, n AS rank_number FROM (
    SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) AS n FROM bid) WHERE n <= 10
