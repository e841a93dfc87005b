"""The sources of signals about a node. Today one: node-problem-detector's metrics page.

The agent polls ``npd``: ``scrape`` reads the page (``bounded_http``, ``page_url``), ``page`` parses it,
``tracker`` follows it over time (``memory``, ``compare``). The agent and ``doctor`` import from here. May
import model, units, errors and clock.
"""
