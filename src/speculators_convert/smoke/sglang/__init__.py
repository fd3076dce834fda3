"""SGLang as a back end of `smoke`: servers are started, asked over HTTP, and judged by what they answered."""
