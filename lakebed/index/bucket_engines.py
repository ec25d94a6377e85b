"""The two engines of the bucket index behind one `hoodie.index.type`: a fixed count, or a ring that can be resized."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.errors import InvalidRequest
from lakebed.index.bucket import BucketIndex
from lakebed.index.consistent import ConsistentBucketIndex
from lakebed.index.kinds import BUCKET, IndexKind
from lakebed.index.locations import Index, IndexContext
from lakebed.index.options import BucketEngine, IndexOptions


def open_buckets(context: IndexContext, options: IndexOptions, properties: Mapping[str, str]) -> Index:
    """The bucket index of one write; the number of buckets is never guessed."""
    fields = context.client.config.key_fields
    if options.num_buckets is None:
        raise InvalidRequest(
            "the table does not state how many buckets its index has",
            hint="Give num_buckets= (hoodie.bucket.index.num.buckets) as the table was written with.",
        )
    if not fields:
        raise InvalidRequest("a bucket index needs key columns")
    if options.engine is BucketEngine.CONSISTENT_HASHING:
        return ConsistentBucketIndex(context, options.num_buckets, fields, options.hash_fields)
    known = "hoodie.bucket.index.num.buckets" in context.client.config.properties
    return BucketIndex(context, options.num_buckets, fields, options.hash_fields, count_is_known=known)


BUCKET_KIND = IndexKind(BUCKET, open_buckets, is_hashed=True, needs_record_key=True)
