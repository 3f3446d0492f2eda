function main(v) {
    if (v < 0) { throw new Error('negative'); }
    return v.valueOf();
}
