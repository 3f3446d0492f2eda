SELECT auction, price, bidder, dateTime, extra FROM bid
QUALIFY price = max(price) OVER (PARTITION BY ceil_ms(dateTime, 10000))
