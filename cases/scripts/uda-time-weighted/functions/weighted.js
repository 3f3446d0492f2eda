function main() {
    this.init = function () { this.area = 0; this.time = 0; this.last = null; };
    this.accumulate = function (value, timestamp) {
        var now = timestamp.getTime();
        if (this.last !== null) { this.area += this.last * (now - this.at); this.time += now - this.at; }
        this.last = value;
        this.at = now;
    };
    this.computeResult = function () { return this.time === 0 ? null : this.area / this.time; };
}
