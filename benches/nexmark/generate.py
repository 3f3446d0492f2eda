"""Writes NEXMark events: generate.py EVENTS FOLDER [SEED]. The same arguments give the same bytes.

Of 50 events one is a person, three are auctions and 46 are bids (2%, 6%, 92%), 50 ms apart, so that a day has
1,728,000 of them and no two have the same time. One in twenty is written up to two seconds late. Half of the bids go
to the latest hot auction, three in four come from the latest hot bidder; prices are spread evenly over six orders of
magnitude. `side.csv` is the table of q13.
"""
import datetime, json, random, sys

STEP_MS = 50
START = datetime.datetime(2026, 1, 1)
STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"]
FIRST = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
LAST = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
FIRST_ID = 1000
FIRST_CATEGORY = 10


class Events:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.persons = self.auctions = 0

    def text(self, length):
        return "".join(self.random.choices(LETTERS, k=length))

    def price(self):
        return round(10 ** (self.random.random() * 6) * 100)

    def recent(self, count, hot_every, hot_of, spread):
        """The id of a recent person or auction; the latest hot one `hot_of - 1` times in `hot_of`."""
        last = max(count - 1, 0)
        if self.random.randrange(hot_of) > 0:
            return FIRST_ID + last // hot_every * hot_every
        return FIRST_ID + max(last - self.random.randrange(spread), 0)

    def person(self, at):
        number, self.persons = FIRST_ID + self.persons, self.persons + 1
        r = self.random
        name = f"{r.choice(FIRST)} {r.choice(LAST)}"
        return "person", {
            "id": number, "name": name, "emailAddress": f"{self.text(7)}@{self.text(5)}.com",
            "creditCard": " ".join(f"{r.randrange(10000):04}" for _ in range(4)),
            "city": r.choice(CITIES), "state": r.choice(STATES), "dateTime": at, "extra": self.text(30),
        }

    def auction(self, at, time_of):
        number, self.auctions = FIRST_ID + self.auctions, self.auctions + 1
        r = self.random
        initial = self.price()
        expires = time_of(1000 + r.randrange(60_000))
        return "auction", {
            "id": number, "itemName": self.text(12), "description": self.text(40), "initialBid": initial,
            "reserve": initial + self.price(), "dateTime": at, "expires": expires,
            "seller": self.recent(self.persons, 4, 4, 100), "category": FIRST_CATEGORY + r.randrange(5), "extra": self.text(40),
        }

    def bid(self, at):
        r = self.random
        if r.randrange(2):
            channel = r.choice(CHANNELS)
            url = f"https://www.nexmark.com/{self.text(5)}/{self.text(6)}/item.htm?query=1"
        else:
            number = r.randrange(10_000)
            channel = f"channel-{number}"
            url = f"https://www.nexmark.com/{self.text(5)}/{self.text(6)}/item.htm?query=1&channel_id={number}"
        return "bid", {
            "auction": self.recent(self.auctions, 100, 2, 100), "bidder": self.recent(self.persons, 100, 4, 1000),
            "price": self.price(), "channel": channel, "url": url, "dateTime": at, "extra": self.text(20),
        }


def iso(ms):
    at = START + datetime.timedelta(milliseconds=ms)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"


def main():
    count, folder = int(sys.argv[1]), sys.argv[2]
    events = Events(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    files = {name: open(f"{folder}/{name}.jsonl", "w") for name in ("person", "auction", "bid")}
    waiting = []  # (position in which it is written, file, line)

    def write_until(position):
        while waiting and waiting[0][0] <= position:
            _, name, line = waiting.pop(0)
            files[name].write(line)

    for number in range(count):
        ms = (number + 1) * STEP_MS
        kind = number % 50
        if kind == 0:
            name, event = events.person(iso(ms))
        elif kind < 4:
            name, event = events.auction(iso(ms), lambda later: iso(ms + later))
        else:
            name, event = events.bid(iso(ms))
        line = json.dumps(event, separators=(",", ":")) + "\n"
        write_until(number)
        if events.random.randrange(20) == 0:
            waiting.append((number + 1 + events.random.randrange(2000 // STEP_MS), name, line))
            waiting.sort(key=lambda entry: entry[0])
        else:
            files[name].write(line)
    write_until(sys.maxsize)
    for file in files.values():
        file.close()
    with open(f"{folder}/side.csv", "w") as side:
        side.write("key,value\n")
        side.writelines(f"{key},value-{key}\n" for key in range(10_000))


if __name__ == "__main__":
    main()
