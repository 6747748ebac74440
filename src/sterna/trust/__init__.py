"""Who is believed, and how that is tested: scores, samples, judgements. Pure: nothing here does any I/O."""
