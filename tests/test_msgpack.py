"""MessagePack: values of every type, streams, keys, laziness, hostile input."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from struct import pack

import pytest

import pparse
from pparse import MapKeyTypes
