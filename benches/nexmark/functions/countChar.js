function main(text, letter) {
    return text.split(letter).length - 1;
}
