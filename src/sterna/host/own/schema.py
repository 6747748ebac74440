"""The tables of the index."""

VERSION = 1

TABLES = """
CREATE TABLE about (site TEXT NOT NULL);

CREATE TABLE page (
    id INTEGER PRIMARY KEY,
    mark INTEGER NOT NULL UNIQUE,  -- the fingerprint of its URL
    url TEXT NOT NULL,
    depth INTEGER NOT NULL,
    title TEXT NOT NULL,
    canonical INTEGER NOT NULL,    -- the mark of the page of which it says that it is a copy, or its own
    folder INTEGER,                -- of an index.html: the mark of the folder that shows it
    digest BLOB NOT NULL,
    likeness BLOB NOT NULL,        -- as it was when the page last really changed
    etag TEXT NOT NULL,
    modified TEXT NOT NULL,        -- as the server wrote it
    lastmod REAL,                  -- NULL where nobody can know
    created REAL,                  -- NULL: before the first whole survey
    read REAL NOT NULL,            -- when it last came whole
    seen REAL NOT NULL,            -- when it was last there
    missing REAL,                  -- since when the server says that it is not
    missed INTEGER                 -- by which survey that was found
);

-- A copy is left out where the page that it names is there, and is none itself.
CREATE VIEW copy AS
    SELECT page.mark FROM page JOIN page AS whole ON whole.mark = page.canonical
    WHERE page.canonical <> page.mark AND whole.canonical = whole.mark AND whole.missing IS NULL
    UNION
    SELECT page.mark FROM page JOIN page AS whole ON whole.mark = page.folder
    WHERE whole.digest = page.digest AND whole.canonical = whole.mark AND whole.missing IS NULL;

CREATE VIEW shown AS
    SELECT * FROM page WHERE missing IS NULL AND mark NOT IN (SELECT mark FROM copy);

CREATE TABLE change (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    mark INTEGER NOT NULL,
    url TEXT NOT NULL,
    title TEXT NOT NULL,
    kind TEXT NOT NULL,            -- created, updated, deleted
    at REAL NOT NULL,              -- when it happened, as far as can be known
    told REAL NOT NULL             -- from when on somebody could have been told
);
CREATE INDEX change_of_page ON change (mark, n);
CREATE INDEX change_told ON change (told);

CREATE TABLE survey (
    number INTEGER PRIMARY KEY,
    began REAL NOT NULL,
    ended REAL,                    -- NULL: under way, or to be gone on with
    is_whole INTEGER NOT NULL DEFAULT 0,
    requests INTEGER NOT NULL DEFAULT 0,
    pages INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL DEFAULT 0,
    updated INTEGER NOT NULL DEFAULT 0,
    deleted INTEGER NOT NULL DEFAULT 0
);

-- The frontier of the survey under way; what was done in it has no target any more.
CREATE TABLE todo (mark INTEGER PRIMARY KEY, depth INTEGER NOT NULL, target BLOB);
CREATE INDEX todo_waiting ON todo (depth) WHERE target IS NOT NULL;

CREATE VIRTUAL TABLE words USING fts5 (title, headings, text, tokenize = 'unicode61 remove_diacritics 2');
"""
