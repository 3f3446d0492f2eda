function main(v) {
    if (v === null) { return 'null'; }
    if (Array.isArray(v)) { return 'Array'; }
    if (v instanceof Date) { return 'Date'; }
    return typeof v;
}
