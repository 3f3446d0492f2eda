function main(text, index) {
    return text.split('/')[index];
}
