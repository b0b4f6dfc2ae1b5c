"""What layouts stand on."""
