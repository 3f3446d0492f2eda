function main() {
    this.init = function () { this.bids = []; };
    this.accumulate = function (bid) { this.bids.push({ at: bid.bidTime.valueOf(), price: bid.price }); };
    this.computeResult = function () {
        var last = this.bids.sort(function (a, b) { return a.at < b.at ? 1 : -1; }).slice(0, 10);
        return last.reduce(function (sum, bid) { return sum + bid.price; }, 0) / last.length;
    };
}
