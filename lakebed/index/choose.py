"""From a table's settings and a writer's options to the index of a write."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.errors import InvalidRequest
from lakebed.index.bloom import bloom_index
from lakebed.index.bucket import BucketIndex
from lakebed.index.consistent import ConsistentBucketIndex
from lakebed.index.locations import Index, IndexContext
from lakebed.index.options import BucketEngine, IndexKind, IndexOptions
from lakebed.index.record_index import RecordIndex
from lakebed.index.simple import simple_index
from lakebed.metadata.metadata_table import MetadataTable
from lakebed.model.record_key import key_generator_of


def open_index(
    context: IndexContext,
    chosen: IndexOptions,
    properties: Mapping[str, str] | None = None,
    *,
    fixed_bucket_ids: bool = False,
) -> Index:
    """The index of one write. `properties` are the writer's, for keys that are made from columns.

    `fixed_bucket_ids` is for writers that do not block each other.
    """
    config = context.client.config
    generator = None if config.populate_meta_fields else key_generator_of(config, properties)
    kind = chosen.kind
    if kind is IndexKind.BUCKET:
        return _bucket_index(context, chosen, fixed_bucket_ids)
    if kind is IndexKind.RECORD_INDEX:
        table = MetadataTable.open(context.client)
        if table is None:
            raise InvalidRequest("the table has no metadata table, and so no record index")
        return RecordIndex(context, table, moves=chosen.record_moves)
    if kind in (IndexKind.BLOOM, IndexKind.GLOBAL_BLOOM):
        return bloom_index(
            context,
            is_global=kind.is_global,
            moves=chosen.bloom_moves,
            by_ranges=chosen.prune_by_ranges,
            generator=generator,
        )
    return simple_index(context, is_global=kind.is_global, moves=chosen.simple_moves, generator=generator)


def _bucket_index(context: IndexContext, chosen: IndexOptions, fixed_ids: bool) -> Index:
    fields = context.client.config.key_fields
    if chosen.num_buckets is None:
        raise InvalidRequest(
            "the table does not say how many buckets its index has",
            hint="Give num_buckets= (hoodie.bucket.index.num.buckets) as the table was written with.",
        )
    if not fields:
        raise InvalidRequest("a bucket index needs key columns")
    if chosen.engine is BucketEngine.CONSISTENT_HASHING:
        return ConsistentBucketIndex(context, chosen.num_buckets, fields, chosen.hash_fields)
    known = "hoodie.bucket.index.num.buckets" in context.client.config.properties
    return BucketIndex(context, chosen.num_buckets, fields, chosen.hash_fields, fixed_ids, known)
