"""The formats in which examples can be streamed, by the media types that announce them."""

from __future__ import annotations

from collections.abc import Mapping

from service.parsing.streams.arrow import ARROW
from service.parsing.streams.groups import StreamFormat
from service.parsing.streams.ndjson import NDJSON
from service.parsing.streams.vw import VOWPAL_WABBIT

STREAM_FORMATS: Mapping[str, StreamFormat] = {
    media_type: file_format
    for file_format in (NDJSON, VOWPAL_WABBIT, ARROW)
    for media_type in file_format.media_types
}
