"""How far an index is, for who only reads it."""

from pathlib import Path

from tantivy import Index, Query

from sterna.search import generations, schema


def read_position(folder: Path) -> int | None:
    """The last batch that is in the index whole; None where there is no index."""
    with generations.index_errors(folder):
        generation = generations.current(folder)
        if generation is None:
            return None
        index = Index.open(str(generation))
        query = Query.term_query(index.schema, schema.KIND, schema.POSITION)
        searcher = index.searcher()
        hits = searcher.search(query, limit=1).hits
        if not hits:
            raise generations.unusable(folder, "its position is lost")
        return int(searcher.doc(hits[0][1]).get_first(schema.BATCH))  # type: ignore[arg-type]
