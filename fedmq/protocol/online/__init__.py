"""How is one batch scored while somebody waits? The active party asks, the others answer."""
