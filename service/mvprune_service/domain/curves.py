"""The points of a curve that show its shape."""

from __future__ import annotations

from collections.abc import Sequence


def thin(points: Sequence[tuple[float, float]], most: int) -> list[int]:
    """The positions of at most `most` of the points (x, y), which are in the order of x: the first, the last, and of
    each of the equal parts between them the one that spans the largest triangle with the point kept before it and the
    mean of the next part (largest triangle three buckets; Steinarsson 2013, Downsampling Time Series for Visual
    Representation, section 4.2).

    Args:
        most: at least 3.
    """
    count = len(points)
    if count <= most:
        return list(range(count))
    width = (count - 2) / (most - 2)
    bounds = [1 + int(part * width) for part in range(most - 2)] + [count - 1, count]
    kept = [0]
    for start, end, after in zip(bounds, bounds[1:], bounds[2:], strict=False):
        x, y = points[kept[-1]]
        following = points[end:after]
        mean_x = sum(point[0] for point in following) / len(following)
        mean_y = sum(point[1] for point in following) / len(following)

        def area(at: int, x: float = x, y: float = y, mean_x: float = mean_x, mean_y: float = mean_y) -> float:
            return abs((x - mean_x) * (points[at][1] - y) - (x - points[at][0]) * (mean_y - y))

        kept.append(max(range(start, end), key=area))
    return [*kept, count - 1]
