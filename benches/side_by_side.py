"""Highwater and DuckDB over the same files: the rows of a query compared, CPU seconds per million events and peak memory.

Used by `nexmark/run` and `toll/run`, which say what the tables and queries are. A query is a pair of files, `NAME.saql` and
`NAME.sql`; one without `NAME.sql` is measured alone. Every run is a process of its own, on one thread; figures are medians,
and per million of the events that were asked for, however many of them a query reads.
"""
import argparse, json, os, pathlib, re, resource, statistics, subprocess, sys

BENCHES = pathlib.Path(__file__).resolve().parent
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")


class Suite:
    """The queries of a folder over generated tables.

    `tables` has the columns of each JSON table for DuckDB, `reference` the names of CSV files. Files have the name of their
    table. `settings` are lines of the `[time]` part of every job.
    """

    def __init__(self, script, names, tables, reference, settings):
        self.folder = pathlib.Path(script).resolve().parent
        self.script, self.names, self.tables, self.reference = script, names, tables, reference
        self.settings = settings

    def query(self, name, kind):
        path = self.folder / "queries" / f"{name}.{kind}"
        return path.read_text() if path.exists() else None

    def generate(self, events):
        data = BENCHES / "data" / self.folder.name / str(events)
        if not (data / "done").exists():
            data.mkdir(parents=True, exist_ok=True)
            subprocess.run([sys.executable, self.folder / "generate.py", str(events), data], check=True)
            (data / "done").touch()
        return data

    def job_file(self, name, data, out):
        """Writes the job of a query and returns its path."""
        query = self.query(name, "saql")
        inputs = [(table, data / f"{table}.jsonl", "") for table in self.tables]
        inputs += [(table, data / f"{table}.csv", "reference = true\n") for table in self.reference]
        used = [entry for entry in inputs if re.search(rf"\b{entry[0]}\b", query, re.IGNORECASE)]
        text = f'name = "{name}"\nquery = "{self.folder}/queries/{name}.saql"\n[time]\n{self.settings}'
        for _, function in sorted(set(re.findall(r"\b(udf|uda)\.(\w+)", query))):
            text += f'[functions.{function}]\npath = "{self.folder}/functions/{function}.js"\n'
        for table, path, more in used:
            text += f'[inputs.{table}]\npath = "{path}"\n{more}'
        text += f'[outputs.output]\ntype = "file"\npath = "{out}/{name}.jsonl"\n'
        path = out / f"{name}.toml"
        path.write_text(text)
        return path

    def run_duckdb(self, name, data, out):
        """Runs a query in this process and prints its cost."""
        import duckdb

        db = duckdb.connect(config={"threads": 1})
        db.execute("CREATE MACRO ceil_ms(t, size) AS (epoch_ms(t) + size - 1) // size * size")
        for table, columns in self.tables.items():
            source = f"read_json('{data}/{table}.jsonl', format='newline_delimited', columns={columns})"
            db.execute(f"CREATE VIEW {table} AS SELECT * FROM {source}")
        for table in self.reference:
            db.execute(f"CREATE VIEW {table} AS SELECT * FROM read_csv('{data}/{table}.csv')")
        # A process begins with the peak of the one that started it.
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        before = resource.getrusage(resource.RUSAGE_SELF)
        db.execute(f"COPY ({self.query(name, 'sql')}) TO '{out}/{name}.duckdb.jsonl' (FORMAT json)")
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        peak = re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())
        print(json.dumps({"cpu_seconds": cpu, "peak_megabytes": int(peak[1]) / 1000}))

    def measure(self, name, data, out, options):
        """Runs both engines in turn, prints a line, and returns whether the rows agree."""
        binary = [options.highwater, "bench", "run", "--json", "--threads", "1"]
        job, compares = self.job_file(name, data, out), self.query(name, "sql") is not None
        ours, theirs = [], []
        for _ in range(options.runs):
            ours.append(measured([*binary, job]))
            if compares:
                theirs.append(measured([sys.executable, self.script, "--duckdb", name, data, out]))
        millions = options.events / 1e6
        cost = median(ours, "cpu_seconds") / millions
        line = f"{name:12} {ours[0]['rows']:8} {cost:9.2f} "
        memory = max(run["peak_megabytes"] for run in ours)
        if not compares:
            print(f"{line} {'':15} {memory:6.0f}", flush=True)
            return True
        reason = differences(name, out)
        other = median(theirs, "cpu_seconds") / millions
        print(f"{line}{other:8.2f} {cost / other:7.2f} {memory:6.0f} {max(run['peak_megabytes'] for run in theirs):8.0f}"
              f"   {reason or 'rows agree'}", flush=True)
        return reason is None

    def main(self, doc, events):
        if len(sys.argv) > 1 and sys.argv[1] == "--duckdb":
            return self.run_duckdb(*sys.argv[2:5])
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--events", type=int, default=events)
        parser.add_argument("--runs", type=int, default=1)
        parser.add_argument("--highwater", default=str(BENCHES.parent / "target" / "dist" / "highwater"))
        parser.add_argument("queries", nargs="*", default=self.names)
        options = parser.parse_args()
        os.environ["HIGHWATER_BIN"] = options.highwater
        data = self.generate(options.events)
        out = BENCHES / "out" / self.folder.name
        out.mkdir(parents=True, exist_ok=True)
        print("query            rows Highwater  DuckDB   ratio     MB  MB DuckDB   (CPU seconds per million events)")
        results = [self.measure(name, data, out, options) for name in options.queries]
        sys.exit(not all(results))


def median(runs, figure):
    return statistics.median(run[figure] for run in runs)


def measured(command):
    """What a command prints about its cost."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output = process.communicate()
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{output[0]}{output[1]}")
    return json.loads(output[0].strip().splitlines()[-1])


def value(of):
    """A value in the form in which it is compared."""
    if isinstance(of, bool) or of is None:
        return str(of)
    if isinstance(of, (int, float)):
        return f"{of:.9g}"
    if TIME.match(of):
        whole, _, part = of.rstrip("Z").replace(" ", "T").partition(".")
        return f"{whole}.{part.rstrip('0')}"
    return of


def rows(path):
    with open(path) as lines:
        read = (json.loads(line) for line in lines)
        return sorted(tuple(value(row[name]) for name in sorted(row)) for row in read)


def differences(name, out):
    """Says how the rows of a query differ, or returns None."""
    ours, theirs = rows(out / f"{name}.jsonl"), rows(out / f"{name}.duckdb.jsonl")
    if ours == theirs:
        return None
    missing = sorted(set(theirs) - set(ours))[:3]
    extra = sorted(set(ours) - set(theirs))[:3]
    return f"{len(ours)} rows, DuckDB {len(theirs)}; only DuckDB: {missing}; only Highwater: {extra}"
