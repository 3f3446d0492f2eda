function main(d) {
    return new Date(d.getTime() + 86400000);
}
