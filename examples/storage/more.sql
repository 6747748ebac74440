-- The schema grows: a third column, and another table.
ALTER TABLE page ADD COLUMN language text;
CREATE TABLE content (address bigint NOT NULL REFERENCES address, body text);
