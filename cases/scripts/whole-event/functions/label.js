function main(event, mark) {
    return (event.Name || 'none') + mark + event.pos.x;
}
