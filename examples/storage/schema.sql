-- Two tables: one for the address of a page, one for its contents.
CREATE TABLE address (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, url text NOT NULL UNIQUE);
CREATE TABLE page (address bigint NOT NULL REFERENCES address, title text, fetched timestamptz);
