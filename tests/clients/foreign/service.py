"""Stands in for `test/service.py` of kafka-python, which its source distribution leaves out: the broker runs already."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    def __init__(self, *_args, **_options):
        raise RuntimeError("this suite starts no broker: set KAFKA_URI")
