function main() {
    this.init = function () { this.n = 0; this.id = null; };
    this.accumulate = function (value, timestamp) { this.n += 1; this.id = value.id; };
    this.computeResult = function () { return { id: this.id, n: this.n }; };
}
