"""How is one batch scored while somebody waits? The label holder asks, the others answer."""
