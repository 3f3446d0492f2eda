"""Makes the files of `run`: generate.py EVENTS FOLDER

`entry.jsonl` is made by `highwater bench generate` ($HIGHWATER_BIN) with 100,000 plates. Of it are made `exit.jsonl`, an exit 1 to 20
minutes after each entry, and `owner.csv`, a row for each plate. `sensor.jsonl` has arrays of five readings.
"""
import json, os, random, subprocess, sys
from datetime import datetime, timedelta

events, folder = int(sys.argv[1]), sys.argv[2]
chance = random.Random(7)


def text(time):
    return time.isoformat(timespec="milliseconds") + "Z"


def toll():
    command = [os.environ["HIGHWATER_BIN"], "bench", "generate", "--events", str(events), "--keys", "100000"]
    subprocess.run([*command, f"{folder}/entry.jsonl"], check=True)
    exits, plates = [], set()
    with open(f"{folder}/entry.jsonl") as lines:
        for event in map(json.loads, lines):
            entry = datetime.fromisoformat(event["EntryTime"].rstrip("Z"))
            plates.add(event["LicensePlate"])
            exits.append((entry + timedelta(milliseconds=chance.randrange(60_000, 1_200_000)), event))
    exits.sort(key=lambda pair: pair[0])
    with open(f"{folder}/exit.jsonl", "w") as out:
        for time, event in exits:
            line = {"TollId": event["TollId"], "ExitTime": text(time), "LicensePlate": event["LicensePlate"]}
            out.write(json.dumps(line, separators=(",", ":")) + "\n")
    with open(f"{folder}/owner.csv", "w") as out:
        out.write("Plate,Owner,Fleet\n")
        for number, plate in enumerate(sorted(plates)):
            out.write(f"{plate},owner-{number},fleet-{number % 50}\n")


def sensor():
    begin = datetime(2026, 1, 1)
    with open(f"{folder}/sensor.jsonl", "w") as out:
        for number in range(events):
            readings = [{"Name": f"n{chance.randrange(20)}", "Value": chance.randrange(400) / 4} for _ in range(5)]
            event = {"Time": text(begin + timedelta(milliseconds=number)), "Device": f"d{chance.randrange(1000)}", "Readings": readings}
            out.write(json.dumps(event, separators=(",", ":")) + "\n")


toll()
sensor()
