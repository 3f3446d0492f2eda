"""W2 on Flink SQL from topic to topic: a mini-cluster in one JVM, checkpoints every second, until it is ended.

    flink.py SERVERS TOPIC ROWS GROUP CONNECTOR_JAR GUARANTEE
"""

import sys

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

servers, topic, rows, group, connector, guarantee = sys.argv[1:]
settings = Configuration()
settings.set_string("pipeline.jars", f"file://{connector}")
settings.set_string("parallelism.default", "2")
settings.set_string("execution.checkpointing.interval", "1 s")
settings.set_string("table.local-time-zone", "UTC")
table = TableEnvironment.create(EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build())
cluster = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}'"
table.execute_sql(f"""
    CREATE TABLE Entries (TollId INT, EntryTime TIMESTAMP_LTZ(3), Toll DOUBLE,
        WATERMARK FOR EntryTime AS EntryTime - INTERVAL '5' SECOND)
    WITH ({cluster}, 'topic' = '{topic}', 'properties.group.id' = '{group}', 'scan.startup.mode' = 'earliest-offset',
        'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601')""")
table.execute_sql(f"""
    CREATE TABLE Minutes (TollId INT, WindowEnd TIMESTAMP(3), Cars BIGINT, Takings DOUBLE, AverageToll DOUBLE)
    WITH ({cluster}, 'topic' = '{rows}', 'key.format' = 'raw', 'key.fields' = 'TollId', 'value.format' = 'json',
        'sink.delivery-guarantee' = '{guarantee}', 'sink.transactional-id-prefix' = '{group}',
        'properties.transaction.timeout.ms' = '600000')""")
table.execute_sql("""
    INSERT INTO Minutes SELECT TollId, window_end, COUNT(*), SUM(Toll), AVG(Toll)
    FROM TABLE(TUMBLE(TABLE Entries, DESCRIPTOR(EntryTime), INTERVAL '1' MINUTE))
    GROUP BY TollId, window_start, window_end""").wait()
