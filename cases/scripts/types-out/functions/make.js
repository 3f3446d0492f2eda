function main(kind) {
    switch (kind) {
        case 'whole': return 6 / 2;
        case 'part': return 3.5;
        case 'text': return 'x';
        case 'date': return new Date(Date.UTC(2026, 2, 2, 0, 0, 0, 1));
        case 'record': return { a: 1, b: [2] };
        case 'array': return [1, 'x', null];
        case 'bit': return true;
        case 'null': return null;
        case 'function': return function () { };
    }
}
