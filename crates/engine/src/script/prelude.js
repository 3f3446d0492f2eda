// Runs before any script: replaces what JavaScript takes from the outside by what the event says, and hands the host
// the few functions it needs. `clock` is the time of the event; `seed` gives a number once for every call, then undefined.
(function (clock, seed) {
  "use strict";
  const Native = Date;
  const days = Native.prototype;
  const getTime = days.getTime;
  let state = 0;

  for (const part of ["FullYear", "Month", "Date", "Day", "Hours", "Minutes", "Seconds", "Milliseconds"]) {
    days["get" + part] = days["getUTC" + part];
    if (part !== "Day") days["set" + part] = days["setUTC" + part];
  }
  days.getTimezoneOffset = function getTimezoneOffset() { return 0; };
  days.toString = days.toLocaleString = days.toUTCString;
  days.toDateString = days.toLocaleDateString = function toDateString() { return this.toUTCString().slice(0, 16); };
  days.toTimeString = days.toLocaleTimeString = function toTimeString() { return this.toUTCString().slice(17); };

  const withoutZone = /^[+-]?\d{4,6}-\d\d-\d\d[T ][\d:.]+$/;
  const zoned = /(Z|GMT|UTC|[+-]\d\d:?\d\d)$|^[+-]?\d{4,6}(-\d\d(-\d\d)?)?$/i;
  const parse = function parse(text) {
    text = String(text).trim();
    if (withoutZone.test(text)) text += "Z";
    else if (!zoned.test(text)) text += " UTC";
    return Native.parse(text);
  };

  function Clock(...args) {
    if (new.target === undefined) return new Native(clock()).toString();
    if (args.length === 0) args = [clock()];
    else if (args.length > 1) args = [Native.UTC(...args)];
    else if (typeof args[0] === "string") args = [parse(args[0])];
    return Reflect.construct(Native, args, new.target);
  }
  Clock.prototype = days;
  days.constructor = Clock;
  Object.defineProperty(Clock, "name", { value: "Date" });
  Object.defineProperty(Clock, "length", { value: 7 });
  Clock.now = function () { return clock(); };
  Clock.UTC = Native.UTC;
  Clock.parse = parse;
  globalThis.Date = Clock;

  Math.random = function random() {
    const fresh = seed();
    if (fresh !== undefined) state = fresh;
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };

  for (const name of ["performance", "WeakRef", "FinalizationRegistry", "Atomics", "SharedArrayBuffer"]) {
    delete globalThis[name];
  }

  return {
    plain: Object.prototype,
    date: function (time) { return new Native(time); },
    // The time of a Date, undefined for anything else.
    time: function (value) { return value instanceof Native ? getTime.call(value) : undefined; },
  };
})
