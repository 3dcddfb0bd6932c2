"""The child process: answers requests on its standard input by calling TensorFlow.

Run as ``python -P worker.py SHIM`` (Merger calls; TensorFlow's Python package is not imported) or
``python -P worker.py`` (calls of the Python package). It needs the standard library only.

A frame, either way, is a list of byte strings: their number in 4 bytes, then each with its length in 8, little-endian.
A request is the name of a function of ``CALLS`` and its arguments; an answer a code in decimal and the results: 0 and
what the function returned, or another code, the complaint, and what there is of the result. A process that just ends
has been aborted by the call.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import resource
import struct
import sys
from pathlib import Path

MEMORY = 6 << 30


class Complaint(Exception):
    """The Merger answered with a status that is not OK."""

    def __init__(self, code: int, text: bytes, partial: bytes) -> None:
        super().__init__(code, text)
        self.answer = [b"%d" % code, text, partial]


def read_frame(stream) -> list[bytes] | None:
    """Return the next frame; None at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    parts = []
    for _ in range(struct.unpack("<I", head)[0]):
        size = stream.read(8)
        if len(size) < 8:
            return None
        (length,) = struct.unpack("<Q", size)
        part = stream.read(length)
        if len(part) < length:
            return None
        parts.append(part)
    return parts


def write_frame(stream, parts: list[bytes]) -> None:
    """Write a frame, and see that it gets off."""
    stream.write(struct.pack("<I", len(parts)))
    for part in parts:
        stream.write(struct.pack("<Q", len(part)))
        stream.write(part)
    stream.flush()


# -- the Merger ------------------------------------------------------------------------------------------------------


class Bytes(ctypes.Structure):
    """``Bytes`` of the shim: memory that somebody else keeps alive."""

    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def lend(text: bytes) -> Bytes:
    """Return a view of these bytes; they must outlive the call."""
    return Bytes(ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p), len(text))


class Merger:
    """The functions of the shim."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.referee_fingerprint64.restype = ctypes.c_uint64
        self.library.referee_free.restype = None

    def ask(self, name: str, *args: object) -> list[bytes]:
        result, complaint = Bytes(), Bytes()
        code = getattr(self.library, name)(*args, ctypes.byref(result), ctypes.byref(complaint))
        texts = []
        for given in (result, complaint):
            texts.append(ctypes.string_at(given.data, given.size) if given.data else b"")
            self.library.referee_free(given)
        if code:
            raise Complaint(code, texts[1], texts[0])
        return [texts[0]]

    def read(self, *args: bytes) -> list[bytes]:
        return self.ask("referee_read", *map(lend, args))

    def read_string(self, *args: bytes) -> list[bytes]:
        return self.ask("referee_read_string", *map(lend, args))

    def read_partial(self, *args: bytes) -> list[bytes]:
        return self.ask("referee_read_partial", *map(lend, args))

    def merge(self, tree: bytes, full_name: bytes, descriptors: bytes, *pieces: bytes) -> list[bytes]:
        lent = (Bytes * len(pieces))(*map(lend, pieces))
        count = ctypes.c_size_t(len(pieces) // 2)
        return self.ask("referee_merge", lend(tree), lend(full_name), lend(descriptors), lent, count)

    def fingerprint64(self, text: bytes) -> list[bytes]:
        return [b"%d" % self.library.referee_fingerprint64(lend(text))]


# -- the Python package ----------------------------------------------------------------------------------------------


class Package:
    """Calls of the TensorFlow package; it is imported by the first (~3 s)."""

    def make_saved_model(self, folder: bytes) -> list[bytes]:
        """Save a module with constants of 100 kB, functions, variables and an asset; returns nothing."""
        import numpy as np
        import tensorflow as tf

        chooser = np.random.default_rng(11)
        words = Path(os.fsdecode(folder) + ".txt")
        words.write_text("lazy\nbounded\npartial\n")
        large = [chooser.standard_normal((160, 160)).astype("float32") for _ in range(3)]

        class Model(tf.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = tf.Variable(chooser.standard_normal((160, 4)).astype("float32"))
                initializer = tf.lookup.TextFileInitializer(
                    str(words),
                    tf.string,
                    tf.lookup.TextFileIndex.WHOLE_LINE,
                    tf.int64,
                    tf.lookup.TextFileIndex.LINE_NUMBER,
                )
                self.table = tf.lookup.StaticVocabularyTable(initializer, num_oov_buckets=1)

            @tf.function(input_signature=[tf.TensorSpec([None, 160], tf.float32)])
            def inner(self, x):
                return tf.nn.relu(x @ tf.constant(large[0])) @ tf.constant(large[1])

            @tf.function(
                input_signature=[tf.TensorSpec([None, 160], tf.float32, "x"), tf.TensorSpec([], tf.int32, "n")]
            )
            def predict(self, x, n):
                for _ in tf.range(n):
                    x = tf.tanh(self.inner(x) + tf.constant(large[2])[:1])
                return {"y": x @ self.weight, "all": x}

            @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "words")])
            def look_up(self, words):
                return {"ids": self.table.lookup(words)}

        model = Model()
        signatures = {"serving_default": model.predict, "look_up": model.look_up}
        tf.saved_model.save(model, os.fsdecode(folder), signatures=signatures)
        words.unlink()
        return []

    def run_saved_model(self, folder: bytes, signature: bytes, inputs: bytes) -> list[bytes]:
        """Load a SavedModel and run a signature: JSON of {name: nested list}, in and out."""
        import tensorflow as tf

        runner = tf.saved_model.load(os.fsdecode(folder)).signatures[signature.decode()]
        wanted = runner.structured_input_signature[1]
        values = {name: tf.constant(value, wanted[name].dtype) for name, value in json.loads(inputs).items()}
        found = {name: value.numpy().tolist() for name, value in runner(**values).items()}
        return [json.dumps(found, sort_keys=True).encode()]

    def constants(self, graph: bytes) -> list[bytes]:
        """Evaluate the constants of a GraphDef: JSON of {name: [dtype, shape, digest or strings]}."""
        import tensorflow as tf

        whole = tf.compat.v1.GraphDef.FromString(graph)
        only = tf.compat.v1.GraphDef(node=[node for node in whole.node if node.op == "Const"])
        found = {}
        with tf.Graph().as_default() as made:
            tf.import_graph_def(only, name="")
            with tf.compat.v1.Session(graph=made) as session:
                for node in only.node:
                    value = session.run(f"{node.name}:0")
                    if value.dtype == object:
                        content = [text.hex() for text in value.reshape(-1)]
                    else:
                        content = hashlib.sha256(value.tobytes()).hexdigest()
                    found[node.name] = [str(value.dtype), value.shape, content]
        return [json.dumps(found).encode()]

    def create_fingerprint(self, folder: bytes) -> list[bytes]:
        """Return the serialized FingerprintDef of a SavedModel folder, made anew."""
        from tensorflow.python.saved_model.pywrap_saved_model import fingerprinting

        return [fingerprinting.CreateFingerprintDef(os.fsdecode(folder))]


def main() -> None:
    """Answer until the input ends."""
    requests = sys.stdin.buffer
    # What the library prints must not get between the frames.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if len(sys.argv) > 1:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        calls: object = Merger(sys.argv[1])
    else:
        calls = Package()
    while (request := read_frame(requests)) is not None:
        name, *args = request
        try:
            answer = [b"0", *getattr(calls, name.decode())(*args)]
        except Complaint as complaint:
            answer = complaint.answer
        except Exception as error:  # whatever TensorFlow raises is an answer
            answer = [b"-2", f"{type(error).__name__}: {error}".encode(), b""]
        write_frame(answers, answer)


if __name__ == "__main__":
    main()
