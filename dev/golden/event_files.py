"""Records an event file made of TensorBoard's own protocol buffers and record writer, for test/log/test_tensorboard.c.

    pip install tensorboard
    python dev/golden/event_files.py            # writes test/golden/events.tfevents
    python dev/golden/event_files.py RUN        # compares RUN/tensorboard, as TensorBoard reads it, with metrics.jsonl

Recorded with tensorboard 2.21.0. Times are 0: the test leaves them out. (A script called tensorboard.py would
hide the library.)
"""
import json
import sys

import numpy as np
from tensorboard.backend.event_processing import event_accumulator, event_multiplexer, plugin_event_accumulator
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter


def scalars(step, **values):
    value = [summary_pb2.Summary.Value(tag=tag.replace("_", "/"), simple_value=x) for tag, x in values.items()]
    return event_pb2.Event(step=step, summary=summary_pb2.Summary(value=value))


def text(step, tag, words):
    plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name="text")
    shape = tensor_shape_pb2.TensorShapeProto(dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)])
    tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, tensor_shape=shape, string_val=[words.encode()])
    value = summary_pb2.Summary.Value(tag=tag + "/text_summary", tensor=tensor,
                                      metadata=summary_pb2.SummaryMetadata(plugin_data=plugin))
    return event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[value]))


def record():
    start = event_pb2.Event(step=301, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))
    events = [event_pb2.Event(file_version="brain.Event:2"), start,
              scalars(301, train_loss=10.98, train_norm=15.5, train_lr=8.4e-7),
              scalars(2000000000, val_loss=3.25),
              text(302, "sample", "a <b> & \"x\"\n\u20ac " + 200 * "long ")]
    with open("test/golden/events.tfevents", "wb") as f:
        writer = RecordWriter(f)
        for event in events:
            writer.write(event.SerializeToString(deterministic=True))
        writer.flush()


def read_records(run):
    """The records of metrics.jsonl; a start does the steps after its config record again."""
    records = []
    for record in map(json.loads, open(run + "/metrics.jsonl")):
        if record["kind"] == "config":
            records = [r for r in records if r["step"] <= record["step"]]
        records.append(record)
    return records


def compare(run):
    records = read_records(run)
    all_of = event_accumulator.STORE_EVERYTHING_SIZE_GUIDANCE
    many = event_multiplexer.EventMultiplexer(size_guidance=all_of).AddRunsFromDirectory(run)
    many.Reload()
    (name,) = many.Runs()
    events = many.GetAccumulator(name)

    def recorded(kind, key):
        return [(r["step"], r[key]) for r in records if r["kind"] == kind and r[key] is not None]

    for tag, kind in [("train/loss", "train"), ("train/norm", "train"), ("train/lr", "train"), ("speed/ms", "train"),
                      ("speed/tok_s", "train"), ("val/loss", "val")]:
        key = tag.split("/")[1]
        want = recorded(kind, key)
        got = [(e.step, e.value) for e in events.Scalars(tag)]
        assert [w[0] for w in want] == [g[0] for g in got], tag
        rounding = 0.51 if key == "tok_s" else 0  # an integer in metrics.jsonl
        assert np.allclose([w[1] for w in want], [g[1] for g in got], rtol=1e-6, atol=rounding), tag
        print(tag, len(got), "equal")
    texts = plugin_event_accumulator.EventAccumulator(run + "/tensorboard",
                                                      size_guidance={plugin_event_accumulator.TENSORS: 0})
    texts.Reload()
    got = [(e.step, e.tensor_proto.string_val[0].decode()) for e in texts.Tensors("sample/text_summary")]
    assert got == recorded("sample", "text")
    print("samples", len(got), "equal")


if __name__ == "__main__":
    compare(sys.argv[1]) if len(sys.argv) > 1 else record()
