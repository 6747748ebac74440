Extracts = tuple[tuple[str, tuple[str, ...]], ...]
def extract(markup, selectors): return ()
def check_selector(css): return None
