"""TOY1 files with a listing of their own: the records at every depth, named like files in folders."""

from __future__ import annotations

from toy_parser import ToyParser

from pparse import MAP, Listing, Member, Status


class ListedToyParser(ToyParser, Listing):
    """The toy, as `pparse ls`, `get` and `info` should show it without a viewer."""

    def members(self):
        names = []
        for visit in self.walk(self.result.root):
            names[max(0, visit.depth - 1) :] = [visit.key] if visit.depth else []
            if visit.shape != MAP:
                size, status = visit.end - visit.start, visit.status or Status.COMPLETE
                yield Member("/".join(names), visit.kind, visit.start, size, status)

    def find_member(self, name):
        node = self.result.root
        for key in name.split("/"):
            node = node.find(key) if node is not None else None
        return node

    def details(self):
        yield "records", f"{sum(1 for _ in self.members()):,}"
