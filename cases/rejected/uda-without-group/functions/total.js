function main() {
    this.init = function () { this.state = 0; };
    this.accumulate = function (value, timestamp) { this.state += value; };
    this.computeResult = function () { return this.state; };
}
