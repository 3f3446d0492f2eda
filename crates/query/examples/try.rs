use highwater_query::*;
fn main() {
    let source = std::env::args().nth(1).unwrap();
    match compile(&source, &Catalog::open()) {
        Ok(c) => {
            c.warnings
                .iter()
                .for_each(|w| println!("{}", w.render(&source, "query.saql")));
            println!("{}", explain(&c.plan));
        }
        Err(e) => e
            .iter()
            .for_each(|w| println!("{}", w.render(&source, "query.saql"))),
    }
}
