function main(v) { return v * 2; }
