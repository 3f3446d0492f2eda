//! Geometries written as well-known text: `POLYGON ((0 0, 10 0, 10 10, 0 0))`.

use geo::geometry::{
    Coord, Geometry, GeometryCollection, MultiLineString, MultiPoint, MultiPolygon, Point, Polygon,
};

use super::geometry::{GeometryReader, Malformed, line, polygon};

/// How deep collections may nest.
const DEPTH_MAX: usize = 16;

const SYNTAX: Malformed = "it is no well-known text such as POINT (30 10)";

/// The geometry that a text spells. One without points is an empty collection.
pub(super) fn parse(text: &str, reading: &mut GeometryReader) -> Result<Geometry, Malformed> {
    let mut reader = Reader {
        rest: text,
        reading,
    };
    let geometry = reader.geometry(DEPTH_MAX)?;
    match reader.rest.trim().is_empty() {
        true => Ok(geometry),
        false => Err(SYNTAX),
    }
}

struct Reader<'a, 'r> {
    rest: &'a str,
    reading: &'r mut GeometryReader,
}

impl<'a> Reader<'a, '_> {
    fn geometry(&mut self, depth: usize) -> Result<Geometry, Malformed> {
        let shape = self.word().to_ascii_uppercase();
        if self.dimensions_then_empty() {
            return Ok(Geometry::GeometryCollection(GeometryCollection(Vec::new())));
        }
        Ok(match shape.as_str() {
            "POINT" => Geometry::Point(self.within(Reader::point)?),
            "LINESTRING" => Geometry::LineString(line(self.list(Reader::coord)?)?),
            "POLYGON" => Geometry::Polygon(self.polygon()?),
            "MULTIPOINT" => Geometry::MultiPoint(MultiPoint(self.list(Reader::loose_point)?)),
            "MULTILINESTRING" => {
                let lines = self.list(|reader| line(reader.list(Reader::coord)?))?;
                Geometry::MultiLineString(MultiLineString(lines))
            }
            "MULTIPOLYGON" => {
                let polygons = self.list(Reader::polygon)?;
                Geometry::MultiPolygon(MultiPolygon(polygons))
            }
            "GEOMETRYCOLLECTION" => {
                let depth = depth.checked_sub(1).ok_or("it nests too deep")?;
                let parts = self.list(|reader| reader.geometry(depth))?;
                Geometry::GeometryCollection(GeometryCollection(parts))
            }
            _ => return Err(SYNTAX),
        })
    }

    /// `Z`, `M` or `ZM`, which are ignored, and whether the word EMPTY replaces the points.
    fn dimensions_then_empty(&mut self) -> bool {
        let word = self.word();
        let is = |known: &str| word.eq_ignore_ascii_case(known);
        match ["Z", "M", "ZM"].into_iter().any(is) {
            true => self.word().eq_ignore_ascii_case("EMPTY"),
            false => is("EMPTY"),
        }
    }

    fn word(&mut self) -> &'a str {
        let text = self.rest.trim_start();
        let end = text.find(|c: char| !c.is_ascii_alphabetic());
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        self.rest = rest;
        word
    }

    fn take(&mut self, c: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn within<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<T, Malformed> {
        if !self.take('(') {
            return Err(SYNTAX);
        }
        let value = inner(self)?;
        match self.take(')') {
            true => Ok(value),
            false => Err(SYNTAX),
        }
    }

    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        self.within(|reader| {
            let mut items = vec![item(reader)?];
            while reader.take(',') {
                items.push(item(reader)?);
            }
            Ok(items)
        })
    }

    fn polygon(&mut self) -> Result<Polygon, Malformed> {
        let rings = self.list(Reader::ring)?;
        polygon(rings, self.reading)
    }

    fn ring(&mut self) -> Result<Vec<Coord>, Malformed> {
        self.list(Reader::coord)
    }

    fn point(&mut self) -> Result<Point, Malformed> {
        self.coord().map(Point)
    }

    /// Points of a MULTIPOINT may have brackets of their own.
    fn loose_point(&mut self) -> Result<Point, Malformed> {
        match self.rest.trim_start().starts_with('(') {
            true => self.within(Reader::point),
            false => self.point(),
        }
    }

    /// Two numbers, and up to two more that are left aside.
    fn coord(&mut self) -> Result<Coord, Malformed> {
        let (x, y) = (self.number()?, self.number()?);
        for _ in 0..2 {
            if !self.rest.trim_start().starts_with([',', ')']) {
                self.number()?;
            }
        }
        Ok(Coord { x, y })
    }

    fn number(&mut self) -> Result<f64, Malformed> {
        let text = self.rest.trim_start();
        let part = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
        let end = text.find(|c: char| !part(c)).unwrap_or(text.len());
        let number = text[..end].parse().ok().filter(|n: &f64| n.is_finite());
        self.rest = &text[end..];
        number.ok_or(SYNTAX)
    }
}
