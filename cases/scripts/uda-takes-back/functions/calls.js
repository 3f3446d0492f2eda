function main() {
    this.init = function () { this.calls = ""; };
    this.accumulate = function (value, timestamp) { this.calls += "+" + value; };
    this.deaccumulate = function (value, timestamp) { this.calls += "-" + value; };
    this.deaccumulateState = function (other) { this.calls += "-(" + other.calls + ")"; };
    this.computeResult = function () { return this.calls; };
}
