"""TensorBoard's event files, read record by record."""

import struct
from collections import defaultdict
from pathlib import Path


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """Read the curves in the event files of a folder: of each tag, the value at each step."""
    from tensorboardX.proto.event_pb2 import Event

    curves: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for file in sorted(folder.rglob("events.out.tfevents.*")):
        data, start = file.read_bytes(), 0
        while start < len(data):
            # A record is its length, a checksum of that, its bytes, and a checksum of those.
            (length,) = struct.unpack_from("<Q", data, start)
            event = Event.FromString(data[start + 12 : start + 12 + length])
            start += length + 16
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    curves[value.tag][event.step] = value.simple_value
    return dict(curves)
